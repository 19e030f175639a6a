"""Hadar and HadarE: GPUs sold at prices that rise with load, and jobs forked into copies.

Source: Sultana, Yuan, Tzeng, Chen, "Resource Heterogeneity-Aware and Utilization-Enhanced
Scheduling for Deep Learning Clusters" (first published at IPDPS '24). `hadar.py` and `hadare.py`
are the policies; what is traced where: docs/policies/hadar.md and hadare.md.
"""
