"""Two budgets aligned: which term moved, by how much, and because of which flag or version."""
