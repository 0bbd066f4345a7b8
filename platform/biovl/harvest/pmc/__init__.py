"""What a service of single objects holds, which of it is wanted, and how it is fetched. No Ray."""
