"""Values of declared types, to and from what stands in files, settings and databases.

`json` is what all JSON here has in common. `files` reads what people and other programs write, and
names the key that is wrong; `records` keeps our own records to the last bit; `text` is for
parameters and settings.
"""
