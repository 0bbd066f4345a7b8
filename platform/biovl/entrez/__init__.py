"""Asking PubMed through NCBI's E-utilities, within its limits, and keeping what it answered."""
