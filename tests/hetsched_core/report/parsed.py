"""A page as a browser reads it."""

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "hr", "input", "use"}


class Page(HTMLParser):
    """A page as parsed: its elements, whether they nest, its tables, its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.tables: list[list[list[str]]] = []
        self.classes: list[str] = []
        self.values: dict[str, list[float]] = {}
        self.text = ""
        self._open: list[str] = []
        self._row = ""
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.elements.append((tag, given))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self.tables.append([])
            self.classes.append(given.get("class", ""))
        if tag == "tr":
            self.tables[-1].append([])
            self._row = given.get("id", "")
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag == "data" and self._row:
            self.values.setdefault(self._row, []).append(float(given["value"]))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self.text += data
        if {"td", "th"} & set(self._open):
            self.tables[-1][-1][-1] += data

    def rows(self, name: str) -> dict[str, list[str]]:
        """The rows of the first table of a class, by their first cell."""
        return {row[0]: row for row in self.tables[self.classes.index(name)]}

    def ids(self) -> list[str]:
        return [given["id"] for _, given in self.elements if "id" in given]
