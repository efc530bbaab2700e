package algorithms

// storeOf is a Redis as package failmode has it.
func storeOf(r *Redis) store { return store{r} }
