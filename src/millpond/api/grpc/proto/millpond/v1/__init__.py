"""The first version; fields are added to it, and none is taken away or changed."""
