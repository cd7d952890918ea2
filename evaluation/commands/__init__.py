"""What is behind the front door: arguments, problems from what a user gives, and the verbs."""
