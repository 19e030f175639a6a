"""Hops: jobs with requirement sets, placed on nodes that differ, by a programme each round.

Source: Wang, Wang, Zheng, "Hops: Fine-grained heterogeneous sensing, efficient and fair Deep
Learning cluster scheduling system", SoCC '24. `hops.py` is the policy; what is traced where, and
every deviation: docs/policies/hops.md.
"""
