package cluster

import (
	"fmt"
	"net/http"
)

// refusal is an error that a worker answers with, in vLLM's shape.
type refusal struct {
	status  int
	kind    string
	message string
	param   string // "" is null
}

func (r *refusal) Error() string { return fmt.Sprintf("%d %s: %s", r.status, r.kind, r.message) }

// badSchema is for a body that is not of the form of a request.
func badSchema(param, format string, args ...any) error {
	return &refusal{http.StatusBadRequest, "Bad Request", fmt.Sprintf(format, args...), param}
}

// badValue is for a well-formed request whose values do not go together.
func badValue(param, format string, args ...any) error {
	return &refusal{http.StatusBadRequest, "BadRequestError", fmt.Sprintf(format, args...), param}
}

// loadFailed is what a decode worker says when it could not read the KV.
var loadFailed = refusalOf(http.StatusInternalServerError)

// refusalOf is what a worker says with a status alone.
func refusalOf(status int) *refusal {
	kinds := map[int]string{
		http.StatusBadRequest:          "BadRequestError",
		http.StatusNotFound:            "NotFoundError",
		http.StatusUnprocessableEntity: "UnprocessableEntityError",
		http.StatusNotImplemented:      "NotImplementedError",
		http.StatusInternalServerError: "InternalServerError",
	}
	kind, ok := kinds[status]
	message := http.StatusText(status)
	if !ok {
		kind = message
	}
	if status == http.StatusInternalServerError {
		message = "Internal server error"
	}
	return &refusal{status: status, kind: kind, message: message}
}

// errorBody is vLLM's error object.
type errorBody struct {
	Error errorFields `json:"error"`
}

type errorFields struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    int     `json:"code"`
}

func (r *refusal) body() errorBody {
	fields := errorFields{Message: r.message, Type: r.kind, Code: r.status}
	if r.param != "" {
		fields.Param = &r.param
	}
	return errorBody{fields}
}
