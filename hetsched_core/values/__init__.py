"""Values of declared types, to and from what stands in files, settings and databases.

`json` is what all JSON here has in common, `records` is for records in JSON and TOML, `text` for
parameters and settings.
"""
