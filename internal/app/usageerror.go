package app

// UsageError is a mistake of whoever started the program: a setting or an
// argument that cannot be. The program ends with exit code 2.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the mistakes.
func (e *UsageError) Unwrap() error { return e.Err }
