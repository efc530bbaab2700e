package algorithms

// KeyOf is the key of a check's count.
func KeyOf(namespace string, c Check) string { return keyOf(namespace, c) }
