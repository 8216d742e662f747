package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const introduction = `# Configuration

<!-- Written by "make docs" from conf/coordinator.toml. Change that file, not this one: a test compares them. -->

One TOML file, ` + "[`conf/coordinator.toml`](../conf/coordinator.toml)" + `, of which this page is a rendering.
` + "[`conf/examples`](../conf/examples)" + ` has whole pipelines. Under each key stands the environment variable that overrides it. The last
column says what a reload (SIGHUP, or ` + "`POST /reload`" + `) does with a key that has another value than before: it is *put in
force*, or it needs a *restart*. See [Reload](operations.md#reload).

`

// writeConfiguration writes the page.
func writeConfiguration(sections []section, rules reloadRules) []byte {
	var out bytes.Buffer
	out.WriteString(introduction)
	for _, s := range sections {
		writeSection(&out, s, rules)
	}
	return append(bytes.TrimRight(out.Bytes(), "\n"), '\n')
}

func writeSection(out *bytes.Buffer, s section, rules reloadRules) {
	switch {
	case s.Step != "":
		fmt.Fprintf(out, "### Step `%s`\n\n", s.Step)
		if s.Optional {
			out.WriteString("Not in the default pipeline.\n\n")
		}
	case s.Title != "":
		fmt.Fprintf(out, "## `%s`\n\n", s.Title)
	}
	paragraphs(out, s.About)
	if s.Title == stepsTable {
		out.WriteString("`type` says which phase a step is. Its keys stand under `[pipeline.steps.params]`.\n\n")
	}
	if len(s.Keys) > 0 {
		if s.Title == "" {
			out.WriteString("## Top of the file\n\n")
		}
		out.WriteString("| key | type | default | what it is | reload |\n|---|---|---|---|---|\n")
	}
	for _, k := range s.Keys {
		name := k.Name
		if s.Step != "" {
			name = "pipeline.steps." + name
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s |\n", nameCell(s, k), kind(k), defaultCell(k), escape(k.Comment), rules.of(name))
	}
	if len(s.Keys) > 0 {
		out.WriteByte('\n')
	}
	paragraphs(out, s.Notes)
}

func paragraphs(out *bytes.Buffer, texts []string) {
	for _, text := range texts {
		text = escape(strings.ToUpper(text[:1]) + text[1:])
		if !strings.HasSuffix(text, ".") {
			text += "."
		}
		out.WriteString(text + "\n\n")
	}
}

// nameCell is the key as it stands in its table, with its variable.
func nameCell(s section, k key) string {
	name := strings.TrimPrefix(k.Name, strings.Trim(s.Title, "[]")+".")
	if k.Variable == "" {
		return "`" + name + "`"
	}
	return "`" + name + "`<br>`" + k.Variable + "`"
}

func defaultCell(k key) string {
	switch {
	case strings.HasPrefix(k.Comment, "required:"):
		return "none"
	case k.Variable == "": // a table of free keys, of which the file shows an example
		return "none; such as `" + k.Default + "`"
	case k.Inherited:
		return "`" + k.Default + "`, inherited"
	}
	return "`" + k.Default + "`"
}

// kind names the type of a value.
func kind(k key) string {
	value := k.Default
	text, err := strconv.Unquote(value)
	switch {
	case strings.HasPrefix(value, "[{"):
		return "list of tables"
	case strings.HasPrefix(value, "["):
		return "list of strings"
	case strings.HasPrefix(value, "{") && strings.Contains(value[1:], "{"):
		return "table of tables"
	case strings.HasPrefix(value, "{") && !strings.Contains(value, `"`):
		return "table of integers"
	case strings.HasPrefix(value, "{"):
		return "table of strings"
	case value == "true" || value == "false":
		return "boolean"
	case err != nil && strings.Contains(value, "."):
		return "number"
	case err != nil:
		return "integer"
	}
	if _, err := time.ParseDuration(text); err == nil {
		return "duration"
	}
	return "string"
}

// escape writes prose so that Markdown takes nothing in it for its own.
func escape(text string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "<", `\<`).Replace(text)
}
