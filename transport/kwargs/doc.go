// Package kwargs reads one rendered multimodal item, as a render service
// returns it in features.kwargs_data: the standard base64 of the msgpack of
// vLLM's MultiModalKwargsItem. It tells what the item's entries are, how large
// their tensors are, and where in the msgpack each entry lies, so that some of
// them can be copied verbatim into a smaller item.
//
// It never looks at the bytes of a tensor, and neither copies nor keeps them.
// It builds nothing of what it reads but the list of entries: what an item can
// make it allocate is bounded by a small multiple of the item's own length,
// whatever lengths the item claims. It runs nothing: the two extension types
// that hold pickled Python objects are refused.
//
// The layout is that of vLLM 0.16.0 and later:
//
//	item   := map{ name:str → elem }
//	elem   := map{ "data": null | value, "field": [ kind:str, map ] }
//	value  := tensor | int | float | bool | [ value… ]
//	tensor := [ dtype:str, [ dim:int… ], ext type 3 ]
package kwargs
