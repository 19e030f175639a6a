"""Published traces of GPU clusters, read as logs: what they tell is what accounting tells.

docs/formats/published.md says which there are, what their columns mean and what is assumed.
"""

from hetsched_core.traces.published.log import PublishedLog
from hetsched_core.traces.published.read import is_published, read_published

__all__ = ["PublishedLog", "is_published", "read_published"]
