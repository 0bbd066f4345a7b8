"""``all``, ``demo`` and ``reproduce``: jobs that read what earlier jobs published.

``links`` determines which steps are done, and what each of them reads.
"""
