package admin

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page and its style
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"unicode"

	"github.com/seed75154129/ratelimit/internal/view"
)

//go:embed page.css
var style string

var styleHash = func() string {
	sum := sha256.Sum256([]byte(style))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}()

//go:embed page.html
var pageText string

// pageTemplate writes a page. Every text goes through t, but for the values of hidden
// inputs, which must be exactly what was sent, and were checked when they were read.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"t":       visible,
	"style":   func() template.CSS { return template.CSS(style) }, //nolint:gosec // it is a file of this package
	"join":    func(texts []string) string { return strings.Join(texts, ", ") },
	"percent": func(part float64) string { return strconv.FormatFloat(part*100, 'g', 4, 64) + " %" },
	"hints":   hints,
}).Parse(pageText))

// visible spells out what cannot be seen in a text, such as a character that turns the
// direction of the text around it.
func visible(text any) string {
	var b strings.Builder
	for _, r := range fmt.Sprint(text) {
		if unicode.IsPrint(r) || r == '\n' {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRuneToGraphic(r), "'"))
		}
	}
	return b.String()
}

// hints say what the values are that name a client of a rule.
func hints(r view.Rule) []string {
	parts := strings.Split(strings.Trim(r.Key, "[]"), ", ")
	if len(parts) == r.Values {
		return parts
	}
	parts = make([]string, r.Values)
	for i := range parts {
		parts[i] = fmt.Sprintf("value %d of %d", i+1, r.Values)
	}
	return parts
}

// done says what was done.
var done = map[string]string{"reset": "Reset", "used": "Set", "ban": "Banned", "unban": "Ban lifted", "raise": "Published"}

// writePage responds with a page. The clients are above all else; they, the overview and
// the error may be nil.
func writePage(w http.ResponseWriter, status int, o *overview, clients []*clientView, err error) {
	page := struct {
		Overview *overview
		Clients  []*clientView
		Empty    []string // rules by which nothing is counted for the client
		Done     string
		Error    error
	}{Overview: o, Error: err}
	for _, c := range clients {
		if len(clients) > 1 && !c.Counted() {
			page.Empty = append(page.Empty, c.Rule)
			continue
		}
		page.Clients = append(page.Clients, c)
		page.Done = c.Order.done
	}
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, page); err != nil { // not reached
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, status, "text/html; charset=utf-8", b.Bytes())
}

func write(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(body) // nobody to tell
}
