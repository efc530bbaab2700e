package step

import "testing"

// boundIndex tells algorithms apart by these alone.
func TestAlgorithmsDifferInLetterOrLength(t *testing.T) {
	seen := map[[2]int]string{}
	for _, row := range Table {
		looks := [2]int{int(row.Name[0]), len(row.Name)}
		if other := seen[looks]; other != "" {
			t.Errorf("%s and %s have the same first letter and length: let boundIndex hash more of them", other, row.Name)
		}
		seen[looks] = row.Name
	}
}
