package check

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/anypb"
)

// validateAll applies the rules that Envoy's API has for values to a message and to
// all that it packs as Any, which the rules themselves do not reach into. A field
// that is deprecated is a fault too.
func validateAll(m proto.Message) error {
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			return err
		}
	}
	if a, ok := m.(*anypb.Any); ok {
		packed, err := a.UnmarshalNew()
		if err != nil {
			return err
		}
		return validateAll(packed)
	}
	var fault error
	m.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if o, ok := field.Options().(*descriptorpb.FieldOptions); ok && o.GetDeprecated() {
			fault = fmt.Errorf("%s is deprecated", field.FullName())
			return false
		}
		fault = validateField(field, value)
		return fault == nil
	})
	return fault
}

func validateField(field protoreflect.FieldDescriptor, value protoreflect.Value) (fault error) {
	switch {
	case field.IsMap():
		if field.MapValue().Message() == nil {
			return nil
		}
		value.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
			fault = validateAll(v.Message().Interface())
			return fault == nil
		})
	case field.Message() == nil:
	case field.IsList():
		for i := range value.List().Len() {
			if fault = validateAll(value.List().Get(i).Message().Interface()); fault != nil {
				return fault
			}
		}
	default:
		return validateAll(value.Message().Interface())
	}
	return fault
}
