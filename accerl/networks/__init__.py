"""Networks: the paper's policy family, students by name, and a user's own modules."""
