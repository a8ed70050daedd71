package userns

// Internals with tables of their own.
var (
	ParseSubIDs   = parseSubIDs
	RangeFrom     = hostRange
	DecodeRecord  = decode
	EncodeMapping = encode
)
