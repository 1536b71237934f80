"""The effect of a change of the loop: the shift of φ, and the parts of the loss change."""
