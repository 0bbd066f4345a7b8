"""Parsing of articles: bytes in, dataclasses out, without access to storage or pixels."""
