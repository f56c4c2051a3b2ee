"""What tests ask of the machine they run on: disks whose power goes, networks that are cut."""
