"""``reproduce``: the tables and figures of the papers, made by the ordinary jobs.

``papers`` reads what they are from ``papers.yaml``, ``graph`` which steps make them.
"""
