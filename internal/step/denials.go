package step

// Denials are what is remembered of a key's denials. The zero value is a key
// that was not denied. Twin: internal/script/src/parts/ban.lua.
type Denials struct {
	Since int64 // when the first of the denials came or, of a ban, when it began
	Until int64 // when the ban ends; 0 if there was none
	Count int64 // denials since; 0 during a ban
	// byHand says that the ban is not a rule's own: checks without a Ban obey it,
	// too. In Redis, they meet it in the place of their count.
	ByHand bool
}

// A Ban is a check's Ban as numbers. Times are in µs. Denials do not count
// where after is 0, and where it is -1, for a shadow check, no ban does.
type Ban struct{ After, Within, Length int64 }

// At returns the state as it stands at now. healed says that a clock wrote it
// that was more than Within ahead: it is as if it had been written now.
func (b Ban) At(s Denials, now int64) (current Denials, healed bool) {
	if s.Since > now+b.Within {
		if s.Count == 0 {
			s.Until = now + max(s.Until-s.Since, 0)
		}
		s.Since = now
		return s, true
	}
	return s, false
}

// Deny counts a denial in a current state in which the key is not banned.
func (b Ban) Deny(s Denials, now int64) Denials {
	if s.Count == 0 || now-s.Since >= b.Within {
		s = Denials{Since: now}
	}
	if s.Count++; s.Count >= b.After {
		s = Denials{Since: now, Until: now + b.Length}
	}
	return s
}

// Extended is a state in which the key is banned for at least length from now.
func (b Ban) Extended(s Denials, now, length int64) Denials {
	return Denials{Since: now, Until: max(s.Until, now+length), ByHand: true}
}

// Forgotten is when a state equals that of a key that was not denied.
func (b Ban) Forgotten(s Denials) int64 {
	if s.Count > 0 {
		return max(s.Until, s.Since+b.Within)
	}
	return s.Until
}
