package script

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed75154129/ratelimit/internal/transport"
)

// ParseReply turns the reply of take.lua into numbers: the clock in µs; for each check 1 or 0
// (has it room?) and three of its state as it is stored.
func ParseReply(reply string) ([]int64, error) {
	numbers, ok := parse(reply)
	if !ok {
		return nil, fmt.Errorf("%w: %.200q", transport.ErrReply, reply)
	}
	return numbers, nil
}

func parse(reply string) (numbers []int64, ok bool) {
	first, rest, more := strings.Cut(reply, "\n")
	head, ok := appendNumbers(make([]int64, 0, 2+3), first)
	if !ok || len(head) < 2 {
		return nil, false
	}
	numbers = append(make([]int64, 0, 1+4*3), head[0]*1_000_000+head[1])
	denied := head[2:]
	for i := int64(1); more; i++ {
		var line string
		line, rest, more = strings.Cut(rest, "\n")
		room, end := int64(1), len(numbers)+4
		if len(denied) > 0 && denied[0] == i {
			room, denied = 0, denied[1:]
		}
		if numbers = append(numbers, room); line != "" {
			numbers, ok = appendState(numbers, line)
		}
		if !ok || len(numbers) > end {
			return nil, false
		}
		for len(numbers) < end { // a key never seen, or a state of two numbers
			numbers = append(numbers, 0)
		}
	}
	return numbers, len(denied) == 0
}

// appendState appends the numbers of a state. Those of a window may be one; see
// common.lua.
func appendState(numbers []int64, text string) (_ []int64, ok bool) {
	begin := len(numbers)
	if numbers, ok = appendNumbers(numbers, text); !ok || len(numbers) > begin+1 {
		return numbers, ok
	}
	sum := max(numbers[begin], -numbers[begin])
	counts := sum % 1_000_000
	if numbers[begin] < 0 {
		return append(numbers[:begin], sum-counts, counts/1000, counts%1000), true
	}
	return append(numbers[:begin], sum-counts, counts), true
}

// appendNumbers appends the numbers in a text, which have a space between them.
func appendNumbers(numbers []int64, text string) (_ []int64, ok bool) {
	for more := true; more; {
		var number string
		number, text, more = strings.Cut(text, " ")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, false
		}
		numbers = append(numbers, n)
	}
	return numbers, true
}
