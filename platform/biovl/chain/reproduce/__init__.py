"""``reproduce``: the tables and figures of the papers, made by the ordinary jobs.

``papers`` reads their definitions from ``papers.yaml``; ``graph`` determines the steps they need.
"""
