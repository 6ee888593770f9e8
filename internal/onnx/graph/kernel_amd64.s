#include "go_asm.h"
#include "textflag.h"

// Both kernels compute one tile of a convolution: see type tile. The inner
// loop runs over the taps of the filter; for each it loads one run of
// neighbouring inputs, broadcasts the weight of each output channel, and
// accumulates in registers. 8 channels by 2 vectors (AVX-512) and 4 channels
// by 3 vectors (AVX2) keep both multipliers of a core busy: more accumulators
// than the latency of a multiplication needs, fewer loads than two per cycle.

#define LOAD_TILE \
	MOVQ t+0(FP), DI \
	MOVQ tile_weights(DI), AX \
	MOVQ tile_offsets(DI), BX \
	MOVQ tile_taps(DI), CX \
	MOVQ tile_in(DI), DX \
	MOVQ tile_out(DI), R8 \
	MOVQ tile_stride(DI), R9 \
	MOVQ tile_add(DI), R10 \
	MOVQ tile_bias(DI), R11 \
	MOVQ tile_slope(DI), R12

#define ZERO512(a, b) \
	VXORPS a, a, a \
	VXORPS b, b, b

#define MULTIPLY512(m, w, a, b) \
	VBROADCASTSS (4*m)(AX), w \
	VFMADD231PS Z16, w, a \
	VFMADD231PS Z17, w, b

// STORE512 finishes output channel m, whose sums are in a and b: bias, the
// tensor to add if there is one, slope for what is below zero.
#define STORE512(m, a, b, next) \
	VBROADCASTSS (4*m)(R11), Z16 \
	VADDPS Z16, a, a \
	VADDPS Z16, b, b \
	TESTQ R10, R10 \
	JZ next \
	VADDPS (R10), a, a \
	VADDPS 64(R10), b, b \
	ADDQ R9, R10 \
next: \
	VBROADCASTSS (4*m)(R12), Z17 \
	VMINPS Z31, a, Z18 \
	VMINPS Z31, b, Z19 \
	VMAXPS a, Z31, a \
	VMAXPS b, Z31, b \
	VFMADD231PS Z18, Z17, a \
	VFMADD231PS Z19, Z17, b \
	VMOVUPS a, (R8) \
	VMOVUPS b, 64(R8) \
	ADDQ R9, R8

// func tileAVX512(t *tile)
TEXT ·tileAVX512(SB), NOSPLIT, $0-8
	LOAD_TILE
	ZERO512(Z0, Z1)
	ZERO512(Z2, Z3)
	ZERO512(Z4, Z5)
	ZERO512(Z6, Z7)
	ZERO512(Z8, Z9)
	ZERO512(Z10, Z11)
	ZERO512(Z12, Z13)
	ZERO512(Z14, Z15)
	VXORPS Z31, Z31, Z31

tap512:
	MOVQ (BX), SI
	VMOVUPS (DX)(SI*1), Z16
	VMOVUPS 64(DX)(SI*1), Z17
	MULTIPLY512(0, Z18, Z0, Z1)
	MULTIPLY512(1, Z19, Z2, Z3)
	MULTIPLY512(2, Z20, Z4, Z5)
	MULTIPLY512(3, Z21, Z6, Z7)
	MULTIPLY512(4, Z22, Z8, Z9)
	MULTIPLY512(5, Z23, Z10, Z11)
	MULTIPLY512(6, Z24, Z12, Z13)
	MULTIPLY512(7, Z25, Z14, Z15)
	ADDQ $32, AX
	ADDQ $8, BX
	DECQ CX
	JNZ tap512

	STORE512(0, Z0, Z1, z0)
	STORE512(1, Z2, Z3, z1)
	STORE512(2, Z4, Z5, z2)
	STORE512(3, Z6, Z7, z3)
	STORE512(4, Z8, Z9, z4)
	STORE512(5, Z10, Z11, z5)
	STORE512(6, Z12, Z13, z6)
	STORE512(7, Z14, Z15, z7)
	VZEROUPPER
	RET

#define ZERO256(a, b, c) \
	VXORPS a, a, a \
	VXORPS b, b, b \
	VXORPS c, c, c

#define MULTIPLY256(m, a, b, c) \
	VBROADCASTSS (4*m)(AX), Y15 \
	VFMADD231PS Y12, Y15, a \
	VFMADD231PS Y13, Y15, b \
	VFMADD231PS Y14, Y15, c

// FINISH256 stores one vector of sums; Y12 is the bias, Y13 the slope, Y14 zero.
#define FINISH256(at, a) \
	VMINPS Y14, a, Y15 \
	VMAXPS a, Y14, a \
	VFMADD231PS Y15, Y13, a \
	VMOVUPS a, at(R8)

#define STORE256(m, a, b, c, next) \
	VBROADCASTSS (4*m)(R11), Y12 \
	VBROADCASTSS (4*m)(R12), Y13 \
	VADDPS Y12, a, a \
	VADDPS Y12, b, b \
	VADDPS Y12, c, c \
	TESTQ R10, R10 \
	JZ next \
	VADDPS (R10), a, a \
	VADDPS 32(R10), b, b \
	VADDPS 64(R10), c, c \
	ADDQ R9, R10 \
next: \
	FINISH256(0, a) \
	FINISH256(32, b) \
	FINISH256(64, c) \
	ADDQ R9, R8

// func tileAVX2(t *tile)
TEXT ·tileAVX2(SB), NOSPLIT, $0-8
	LOAD_TILE
	ZERO256(Y0, Y1, Y2)
	ZERO256(Y3, Y4, Y5)
	ZERO256(Y6, Y7, Y8)
	ZERO256(Y9, Y10, Y11)

tap256:
	MOVQ (BX), SI
	VMOVUPS (DX)(SI*1), Y12
	VMOVUPS 32(DX)(SI*1), Y13
	VMOVUPS 64(DX)(SI*1), Y14
	MULTIPLY256(0, Y0, Y1, Y2)
	MULTIPLY256(1, Y3, Y4, Y5)
	MULTIPLY256(2, Y6, Y7, Y8)
	MULTIPLY256(3, Y9, Y10, Y11)
	ADDQ $16, AX
	ADDQ $8, BX
	DECQ CX
	JNZ tap256

	VXORPS Y14, Y14, Y14
	STORE256(0, Y0, Y1, Y2, y0)
	STORE256(1, Y3, Y4, Y5, y1)
	STORE256(2, Y6, Y7, Y8, y2)
	STORE256(3, Y9, Y10, Y11, y3)
	VZEROUPPER
	RET
