"""The managed nodes: what they have, what is in use there, and which are closed to whom."""
