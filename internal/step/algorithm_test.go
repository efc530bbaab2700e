package step

import "testing"

func TestRowsStandAtTheirNumbers(t *testing.T) {
	for i := range Table {
		if row := &Table[i]; int(row.Number) != i+1 {
			t.Errorf("%s is row %d of Table and has the number %d: put it in order of the numbers", row.Name, i+1, row.Number)
		}
	}
}
