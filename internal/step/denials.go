package step

// Denials are the state of a ban: the denials that may lead to it, or the ban itself. The
// zero value is a key that was not denied. Twin: internal/script/bans.lua.
type Denials struct {
	Since  int64 // when the first denial came, or when the ban began
	Until  int64 // when the ban ends; 0 if there was none
	Count  int64 // denials since Since; 0 during a ban
	ByHand bool  // an operator's ban, which checks without a Ban obey too; in Redis they find it under the key of their count
}

// A Ban is a check's Ban as numbers, with times in µs. If After is 0, denials do not count.
// If it is -1, as for a shadow check, the check obeys no ban either.
type Ban struct{ After, Within, Length int64 }

// At returns the state as it stands at now. If the state was written more than Within ahead
// of now, the clock was wrong: At returns it as if it had been written now, and healed is
// true.
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

// Extended returns a state in which the key is banned for at least length from now.
func (b Ban) Extended(s Denials, now, length int64) Denials {
	return Denials{Since: now, Until: max(s.Until, now+length), ByHand: true}
}

// Forgotten returns when a state equals that of a key that was not denied.
func (b Ban) Forgotten(s Denials) int64 {
	if s.Count > 0 {
		return max(s.Until, s.Since+b.Within)
	}
	return s.Until
}
