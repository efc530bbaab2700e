package keyfunc_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/internal/hint"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// A listed value has its own key, and all else one.
func TestOneOf(t *testing.T) {
	field := keyfunc.BodyJSON("model", 1<<10)
	model := keyfunc.OneOf(field, " Large", "small", "007")
	for body, want := range map[string]string{
		`{"model":"large"}`: "large", `{"model":" LARGE "}`: "large", `{"model":"ſmall"}`: "small", `{"model":"small"}`: "small", `{"model":7}`: "7",
		`{"model":"x1"}`: "other", `{"model":"larger"}`: "other", `{"model":"other"}`: "other", `{"model":" "}`: "other", `{"model":null}`: "other", `{}`: "other",
	} {
		wantKey(t, model, post(jsonType, strings.NewReader(body)), want)
		wantKey(t, keyfunc.Join(key("alice"), model), post(jsonType, strings.NewReader(body)), fmt.Sprintf("5:alice,%d:%s", len(want), want))
	}
	wantKey(t, model, req, "other")
	wantKey(t, keyfunc.OneOf(keyfunc.Header("Model"), "Large"), with("Model", "large"), "Large")
	wantKey(t, keyfunc.OneOf(keyfunc.IP, "2001:DB8::1"), from("[2001:db8::2]:1"), "2001:db8::/64")
	wantErr(t, keyfunc.OneOf(broken, "a"), req, errBroken)
	wantErr(t, keyfunc.OneOf(skip, "a"), req, keyfunc.ErrSkip)
	if got, err := model.Resolve(post(jsonType, strings.NewReader(`{"model":"large","Model":"small"}`))); !isStatus(err, http.StatusBadRequest) {
		t.Errorf("%q, %v", got, err)
	}
	if d := keyfunc.Describe(model); d.Validate() != nil || d.String() != "oneof(bodyjson:model= Large|small|007)" || !d.ReadsBody() || d.Values() != 1 || d.Secret() {
		t.Errorf("%s: %v", d, d.Validate())
	}
	if got := hint.Of(model); got != (hint.Traits{}) {
		t.Errorf("%+v", got)
	}
}

// An operator who misspells a value does not name everything else.
func TestOneOfByPlainValues(t *testing.T) {
	model := keyfunc.OneOf(keyfunc.BodyJSON("model", 1<<10), "large", "small")
	client := keyfunc.Describe(keyfunc.Join(key("a"), model))
	if got, err := hint.Exact(client, []string{"alice", " LARGE"}); err != nil || got != "5:alice,5:large" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := hint.Exact(client, []string{"alice", "larg"}); err == nil || !strings.Contains(err.Error(), `"larg" is not listed; everything that is not listed is "other"`) {
		t.Errorf("%q, %v", got, err)
	}
}

// With a field of the body beside a client's key, made-up values would have new counts.
func TestJoinWithAFieldOfTheBody(t *testing.T) {
	field, user := keyfunc.BodyJSON("model", 1<<10), keyfunc.Context(userID)
	for name, k := range map[string]keyfunc.Key{
		"a user": keyfunc.Join(user, field), "an address": keyfunc.Join(field, keyfunc.IP), "a form": keyfunc.Join(user, keyfunc.BodyForm("model", 64)),
		"Required": keyfunc.Join(user, keyfunc.Required(field, 400)), "Hashed": keyfunc.Join(user, keyfunc.Hashed(field, nil)), "First": keyfunc.Join(user, keyfunc.First(keyfunc.Header("Model"), field)),
		"in a Join": keyfunc.Join(user, keyfunc.Join(keyfunc.Everyone, field)), "in wrappers": keyfunc.Optional(keyfunc.First(keyfunc.Join(user, field))),
		"beside OneOf": keyfunc.Join(user, keyfunc.OneOf(field, "a"), field), "a Func": keyfunc.Join(key("alice"), field), "two of both": keyfunc.Join(field, keyfunc.First(user, field)),
	} {
		if err := keyfunc.Describe(k).Validate(); err == nil || strings.Count(err.Error(), "keyfunc.OneOf(…)") != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, k := range map[string]keyfunc.Key{
		"OneOf": keyfunc.Join(user, keyfunc.OneOf(field, "a")), "an account of two fields": keyfunc.Join(keyfunc.BodyJSON("tenant", 64), keyfunc.BodyJSON("email", 64)),
		"a route": keyfunc.Join(field, keyfunc.Mux(http.NewServeMux())), "alone": keyfunc.Join(field), "one of two": keyfunc.First(user, field),
		"everyone": keyfunc.Join(keyfunc.Everyone, field), "a header": keyfunc.Join(user, keyfunc.Header("Model")),
	} {
		if err := keyfunc.Describe(k).Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func isStatus(err error, status int) bool {
	e, ok := errors.AsType[*keyfunc.StatusError](err)
	return ok && e.Status == status
}
