package step

// A Correction changes the cost of an earlier charge.
type Correction struct {
	Params
	Placed       // where the charge is in the state
	Units  int64 // what the charge cost before
	Delta  int64 // units to add; negative refunds
}

// Settle corrects the charge in a state that At returned. If changed is false, the state
// need not be written.
func (c *Correction) Settle(s State, healed bool, now int64) (settled State, changed bool) {
	if healed && c.Delta < 0 {
		return s, true // the charge cannot be found in a healed state
	}
	settled = c.Step.correct(s, now, c)
	return settled, healed || settled.A != s.A || settled.B != s.B || settled.C != s.C
}
