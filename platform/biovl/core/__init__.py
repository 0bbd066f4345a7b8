"""What every stage is made of: settings, folders with manifests, tables, shards. No Ray."""
