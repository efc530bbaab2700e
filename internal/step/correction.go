package step

// A Correction is a charge that Settle corrects.
type Correction struct {
	Params
	Placed
	Units int64 // what was charged
	Delta int64 // by how much to correct it: negative gives back
}

// Settle corrects a charge in what at returned. Without a change there is
// nothing to write.
func (c *Correction) Settle(s State, healed bool, now int64) (settled State, changed bool) {
	if healed && c.Delta < 0 {
		return s, true // nothing of the charge is in it
	}
	settled = c.Step.correct(s, now, c)
	return settled, healed || settled.A != s.A || settled.B != s.B || settled.C != s.C
}
