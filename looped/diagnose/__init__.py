"""What a change of the loop does: the shift of φ and what else moves the loss at equal FLOPs."""
