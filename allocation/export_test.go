package allocation

// Records are those of one file.
type Records = records

// Decode reads the content of a file.
func Decode(data []byte) (Records, error) { return decode(data) }

// Encode is the content of a file.
func Encode(list Records) ([]byte, error) { return encode(list) }
