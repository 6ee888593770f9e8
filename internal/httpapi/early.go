package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"strconv"

	api "pictor/gen"
	"pictor/internal/fault"
	"pictor/internal/intake"
	"pictor/internal/job"
)

// How much of a body is looked at before it is refused for its account: at first,
// and at most.
const (
	glimpse   = 8 << 10
	beginning = 64 << 10
)

// refuseEarly has the body of an upload refused before it is decoded, if its
// account may not have the job: then the rest of it is received, and nothing
// more. Only what is ordinary by its beginning is refused so. All else is decoded
// first, because its own faults go before those of the account.
func (a *API) refuseEarly(ctx context.Context, x *exchange, operation api.OperationName) {
	b := x.body
	if b == nil {
		return
	}
	u := upload{operation: operation, key: x.inbound.Header.Get("Idempotency-Key")}
	switch b.media {
	case "multipart/form-data":
		u.boundary = b.boundary
	case job.PNG, job.JPEG, job.WebP:
	default:
		return
	}
	if !u.scaled(x.inbound.URL.Query().Get("scale")) {
		return
	}
	// That an image is too large goes before the faults of the account, too. In a
	// form only its length tells.
	if b.declared > beginning && b.declared <= job.MaxImageBytes || b.declared < 0 && u.boundary == "" {
		b.first = func() error { return a.refuseUpload(ctx, x, u) }
	}
}

// upload is what is known of one before its body was read.
type upload struct {
	operation api.OperationName
	task      job.Task
	key       string // Idempotency-Key
	boundary  string // of a form, "" when the body is the image
	settled   bool   // no later field of the form can change the task
}

// scaled takes the scale that a client asks for, and says whether there is such
// a task.
func (u *upload) scaled(scale string) (ok bool) {
	switch u.operation {
	case api.RemoveBackgroundOperation:
		u.task, u.settled = job.RemoveBG, true
		return true
	case api.UpscaleOperation:
	default:
		return false
	}
	n, err := strconv.Atoi(scale)
	if scale == "" {
		n, err = int(api.Scale2), nil
	}
	u.task, ok = job.Upscale(n)
	u.settled = u.boundary == ""
	return ok && err == nil
}

// refuseUpload runs before the first byte is read.
func (a *API) refuseUpload(ctx context.Context, x *exchange, u upload) error {
	b, account := x.body, x.account
	refused := a.admission.Look(ctx, account, u.task, u.key)
	if refused == nil {
		x.looked = u.task
		return nil
	}
	if b.expects {
		return refused // and spare the client the sending
	}
	buffer := a.buffers.Get().(*[]byte)
	defer a.buffers.Put(buffer)
	looked, head, plain := u.task, (*buffer)[:0], false
	for _, size := range []int{glimpse, beginning} {
		n, _ := io.ReadFull(b, (*buffer)[len(head):size]) // an error is there for the next Read as well
		head = (*buffer)[:len(head)+n]
		if plain = u.ordinary(head, (*buffer)[beginning:]); plain {
			break
		}
	}
	if plain && u.task != looked {
		refused = a.admission.Look(ctx, account, u.task, u.key)
	}
	if !plain || refused == nil || !u.settled && errors.Is(refused, &fault.Error{Code: fault.InsufficientBalance}) {
		b.again = bytes.Clone(head)
		return nil
	}
	if err := b.skip(*buffer); err != nil {
		return err
	}
	return refused
}

// ordinary says that an upload has no fault by its beginning.
func (u *upload) ordinary(head, buffer []byte) bool {
	image, plain := head, true
	if u.boundary != "" {
		image, plain = u.open(head, buffer)
	}
	return plain && intake.Ordinary(image, u.task)
}

// open finds the beginning of the image in the beginning of a form, which it
// copies to the buffer, and takes the options that stand before it. false: the
// form is not the ordinary one, in which everything before the image is right
// and the image goes on.
func (u *upload) open(head, buffer []byte) (image []byte, ok bool) {
	form := multipart.NewReader(bytes.NewReader(head), u.boundary)
	seen := make(map[string]bool)
	for {
		part, err := form.NextPart()
		if err != nil {
			return nil, false
		}
		name := part.FormName()
		value, err := readTo(buffer, part)
		isFile := part.FileName() != ""
		switch {
		case seen[name]:
			return nil, false
		case isFile && (name == "image" || name == "file"):
			return value, err == io.ErrUnexpectedEOF
		case err != io.EOF || isFile:
			return nil, false
		case name == "wait":
			seconds, err := strconv.Atoi(string(value))
			ok = err == nil && api.Wait(seconds).Validate() == nil
		case name == "scale" && u.operation == api.UpscaleOperation:
			ok = len(value) > 0 && u.scaled(string(value))
			u.settled = true
		default:
			ok = false
		}
		if !ok {
			return nil, false
		}
		seen[name] = true
	}
}

// readTo reads until an error, the end being one. What p does not hold is none.
func readTo(p []byte, r io.Reader) (read []byte, err error) {
	n := 0
	for n < len(p) && err == nil {
		var more int
		more, err = r.Read(p[n:])
		n += more
	}
	return p[:n], err
}
