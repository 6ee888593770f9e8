package onnx

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"

	ort "github.com/yalue/onnxruntime_go"

	"pictor/internal/onnx/graph"
)

// environment guards the start of ONNX Runtime, which exists once per process:
// the first library that starts serves every later engine, and stays until the
// process ends, so that engines may be opened and closed in any order.
var environment sync.Mutex

// runtimeEngine is ONNX Runtime.
type runtimeEngine struct {
	cuda    bool
	threads int
}

// openBest prefers ONNX Runtime with CUDA, then on the CPU, then onnx-go. A
// library that is there but does not start is an error: the operator installed
// it, and on processors without AVX2 onnx-go is many times slower.
func openBest(cfg Config) (Engine, error) {
	if cfg.Library == "" {
		if _, err := FindLibrary(); errors.Is(err, ErrNoLibrary) {
			return openGo(cfg)
		}
	}
	if e, err := openRuntime(cfg, true); err == nil {
		return e, nil
	}
	return openRuntime(cfg, false)
}

func openRuntime(cfg Config, cuda bool) (Engine, error) {
	path := cfg.Library
	if path == "" {
		found, err := FindLibrary()
		if err != nil {
			return nil, err
		}
		path = found
	}
	if err := startRuntime(path); err != nil {
		return nil, fmt.Errorf("start ONNX Runtime from %s: %w (`go tool task setup` installs the library)", path, err)
	}
	e := &runtimeEngine{cuda: cuda, threads: max(cfg.Threads, 1)}
	if cuda {
		if err := e.tryCUDA(); err != nil {
			return nil, fmt.Errorf("ONNX Runtime from %s offers no CUDA: %w (PICTOR_ENGINE=onnxruntime runs on the CPU)", path, err)
		}
	}
	return e, nil
}

func startRuntime(path string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	environment.Lock()
	defer environment.Unlock()
	if ort.IsInitialized() {
		return nil
	}
	// The official builds report to Microsoft unless this variable, which they
	// read when they are loaded, forbids it: what a session ran on, under an id of
	// the machine that they keep in the user's home.
	if err := os.Setenv("ORT_DISABLE_TELEMETRY", "1"); err != nil {
		return err
	}
	ort.SetSharedLibraryPath(path)
	// Errors come back from the calls; ONNX Runtime would print them as well.
	if err := ort.InitializeEnvironment(ort.WithLogLevelFatal()); err != nil {
		return err
	}
	return shareMemory()
}

// shareMemory gives all sessions one pool of memory for their weights and inner
// results. It takes address space by regions of which only what was used is
// memory. What is freed in a region joins with what is free beside it, so that
// the memory of one model serves the next: in a pool that took each block by
// itself, as in the pool of its own that every session has by default, what all
// the models ever needed would add up.
func shareMemory() error {
	const (
		nextPowerOfTwo = 0
		region         = 64 << 20
	)
	kind, err := ort.GetMemoryInfo()
	if err != nil {
		return err
	}
	pool, err := ort.NewArenaCfgV2(map[string]int{
		"arena_extend_strategy":         nextPowerOfTwo,
		"initial_chunk_size_bytes":      region,
		"max_power_of_two_extend_bytes": region,
	})
	if err != nil {
		return err
	}
	defer pool.Destroy()
	return ort.CreateAndRegisterAllocator(kind, pool)
}

// tryCUDA runs a model of one Relu: a library may carry the CUDA provider on a
// machine without a GPU, which only a session finds out.
func (e *runtimeEngine) tryCUDA() error {
	m, err := e.Load("cuda probe", []byte(reluModel), Options{})
	if err != nil {
		return err
	}
	defer m.Close()
	return m.Run(context.Background(), NewTensor(1, 1, 1, 1), NewTensor(1, 1, 1, 1))
}

// reluModel is an .onnx file: y = Relu(x), opset 13, one float in 4 dimensions.
const reluModel = "\x08\x07" + // IR version 7
	":\x4b" + // graph, 75 bytes
	"\n\x0c\n\x01x\x12\x01y\"\x04Relu" +
	"\x12\x01g" +
	"Z\x1b\n\x01x\x12\x16\n\x14\x08\x01\x12\x10\n\x02\x08\x01\n\x02\x08\x01\n\x02\x08\x01\n\x02\x08\x01" +
	"b\x1b\n\x01y\x12\x16\n\x14\x08\x01\x12\x10\n\x02\x08\x01\n\x02\x08\x01\n\x02\x08\x01\n\x02\x08\x01" +
	"B\x02\x10\x0d" // opset 13

func (e *runtimeEngine) Name() string {
	if e.cuda {
		return CUDA
	}
	return Runtime
}

func (e *runtimeEngine) Provider() string {
	if e.cuda {
		return "CUDA"
	}
	return "CPU"
}

func (e *runtimeEngine) Close() error { return nil }

func (e *runtimeEngine) Load(name string, onnx []byte, opt Options) (Model, error) {
	in, out, err := declared(onnx, opt)
	if err != nil {
		return nil, fmt.Errorf("load model %s: %w", name, err)
	}
	options, err := e.sessionOptions(opt)
	if err != nil {
		return nil, fmt.Errorf("load model %s: %w", name, err)
	}
	defer options.Destroy()
	session, err := ort.NewDynamicAdvancedSessionWithONNXData(onnx, []string{in.Name}, []string{out.Name}, options)
	if err != nil {
		return nil, fmt.Errorf("load model %s: %w", name, err)
	}
	return &runtimeModel{name: name, session: session, half: out.Type == graph.Float16}, nil
}

func (e *runtimeEngine) sessionOptions(opt Options) (*ort.SessionOptions, error) {
	options, err := ort.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	threads := e.threads
	if opt.Threads > 0 {
		threads = opt.Threads
	}
	err = errors.Join(
		options.SetIntraOpNumThreads(threads),
		options.SetInterOpNumThreads(1),
		// Threads that spin between two runs cost up to half of a core.
		options.AddSessionConfigEntry("session.intra_op.allow_spinning", "0"),
		options.AddSessionConfigEntry("session.inter_op.allow_spinning", "0"),
		options.AddSessionConfigEntry("session.use_env_allocators", "1"),
		options.SetMemPattern(opt.MemoryPattern),
		options.SetGraphOptimizationLevel(ort.GraphOptimizationLevelEnableAll),
	)
	if err == nil && e.cuda {
		err = appendCUDA(options)
	}
	if err != nil {
		options.Destroy()
		return nil, err
	}
	return options, nil
}

func appendCUDA(options *ort.SessionOptions) error {
	cuda, err := ort.NewCUDAProviderOptions()
	if err != nil {
		return err
	}
	defer cuda.Destroy()
	if err := cuda.Update(map[string]string{"device_id": strconv.Itoa(0), "use_tf32": "0"}); err != nil {
		return err
	}
	return options.AppendExecutionProviderCUDA(cuda)
}

// runtimeModel is a session, which ONNX Runtime lets several threads run at
// once on one copy of the weights.
type runtimeModel struct {
	name    string
	session *ort.DynamicAdvancedSession
	half    bool // the output is float16
}

func (m *runtimeModel) Run(ctx context.Context, in, out Tensor) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := check(in, out); err != nil {
		return fmt.Errorf("run model %s: %w", m.name, err)
	}
	// ONNX Runtime keeps the two addresses beyond the call that hands them over.
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&in.Data[0])
	pin.Pin(&out.Data[0])

	x, err := ort.NewTensor(shape(in), in.Data)
	if err != nil {
		return fmt.Errorf("run model %s: %w", m.name, err)
	}
	defer x.Destroy()
	y, halves, err := m.output(out)
	if err != nil {
		return fmt.Errorf("run model %s: %w", m.name, err)
	}
	defer y.Destroy()
	if halves != nil {
		pin.Pin(&halves[0])
	}
	if err := m.run(ctx, x, y); err != nil {
		return fmt.Errorf("run model %s on %v: %w", m.name, in.Shape, err)
	}
	if halves != nil {
		fromHalf(out.Data, halves)
	}
	return nil
}

// output is where ONNX Runtime writes: the data of out, or the bytes of numbers
// of half precision that are then converted into it.
func (m *runtimeModel) output(out Tensor) (y ort.Value, halves []byte, err error) {
	if !m.half {
		y, err = ort.NewTensor(shape(out), out.Data)
		return y, nil, err
	}
	halves = make([]byte, 2*len(out.Data))
	y, err = ort.NewCustomDataTensor(shape(out), halves, ort.TensorElementDataTypeFloat16)
	return y, halves, err
}

// run ends early when ctx is cancelled: a large foreign model takes many
// seconds for one picture.
func (m *runtimeModel) run(ctx context.Context, x, y ort.Value) error {
	options, err := ort.NewRunOptions()
	if err != nil {
		return err
	}
	defer options.Destroy()
	terminated := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		options.Terminate()
		close(terminated)
	})
	err = m.session.RunWithOptions([]ort.Value{x}, []ort.Value{y}, options)
	if !stop() {
		<-terminated // options must outlive Terminate
		return ctx.Err()
	}
	return err
}

func (m *runtimeModel) Close() error { return m.session.Destroy() }

func shape(t Tensor) ort.Shape {
	return ort.NewShape(int64(t.Shape[0]), int64(t.Shape[1]), int64(t.Shape[2]), int64(t.Shape[3]))
}
