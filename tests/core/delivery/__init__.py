"""What is kept of deliveries."""
