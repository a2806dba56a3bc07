"""The operations by topic. Importing a module fills `operation.TABLE`."""
