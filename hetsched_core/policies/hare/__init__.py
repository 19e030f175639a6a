"""Hare: training tasks of many jobs, interleaved on heterogeneous GPUs.

Sources: "Hare: Exploiting Inter-job and Intra-job Parallelism of Distributed Machine Learning on
Heterogeneous GPUs", HPDC '22 (offline), and its extension in IEEE Transactions on Cloud Computing,
2024 (HLAS, HLAS-P). What is traced where, and every deviation: docs/policies/hare.md.
"""
