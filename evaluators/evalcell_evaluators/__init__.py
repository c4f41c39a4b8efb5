"""The shelf: built-in evaluators, each one plain file like a user's."""
