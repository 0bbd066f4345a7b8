"""Shared by all jobs: settings, folders with manifests, tables, shards. Without Ray."""
