"""The group coordinator: conversations, properties, machines."""
