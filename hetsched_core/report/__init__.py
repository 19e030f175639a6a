"""What people and programs are shown of a comparison: the result file and the table."""
