"""What happens to messages one by one: delayed ones parked until they are due."""
