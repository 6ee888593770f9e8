// Draws triangles into a depth buffer, with the barycentric coordinates that
// shading needs. Points are x, y in pixels and a depth (smaller is nearer);
// inverse is 1/depth for the correction of perspective, or at most 0 for a
// point behind the camera, whose triangles are left out. With opacity (a
// texture of height x width bytes, looked up through six texture coordinates a
// triangle) points below 100 are holes.
#include <math.h>

void raster(const float *points, const float *inverse, const int *triangles, int count,
            const float *uv, const unsigned char *opacity, int texture_width, int texture_height,
            int width, int height, float *depth, int *owner, float *first, float *second, int base) {
	for (int k = 0; k < count; k++) {
		const int *t = triangles + k * 3;
		const float *a = points + t[0] * 3, *b = points + t[1] * 3, *c = points + t[2] * 3;
		if (!(inverse[t[0]] > 0 && inverse[t[1]] > 0 && inverse[t[2]] > 0)) continue;
		int left = (int)floorf(fminf(a[0], fminf(b[0], c[0]))), right = (int)ceilf(fmaxf(a[0], fmaxf(b[0], c[0])));
		int top = (int)floorf(fminf(a[1], fminf(b[1], c[1]))), bottom = (int)ceilf(fmaxf(a[1], fmaxf(b[1], c[1])));
		if (left < 0) left = 0;
		if (top < 0) top = 0;
		if (right > width - 1) right = width - 1;
		if (bottom > height - 1) bottom = height - 1;
		float area = (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]);
		if (fabsf(area) < 1e-9f) continue;
		for (int y = top; y <= bottom; y++)
			for (int x = left; x <= right; x++) {
				float px = x + .5f, py = y + .5f;
				float w0 = ((b[0] - px) * (c[1] - py) - (b[1] - py) * (c[0] - px)) / area;
				float w1 = ((c[0] - px) * (a[1] - py) - (c[1] - py) * (a[0] - px)) / area;
				float w2 = 1 - w0 - w1;
				if (w0 < 0 || w1 < 0 || w2 < 0) continue;
				float z = w0 * a[2] + w1 * b[2] + w2 * c[2];
				int at = y * width + x;
				if (z >= depth[at]) continue;
				float p0 = w0 * inverse[t[0]], p1 = w1 * inverse[t[1]], p2 = w2 * inverse[t[2]];
				float sum = p0 + p1 + p2;
				p0 /= sum, p1 /= sum, p2 /= sum;
				if (opacity) {
					const float *q = uv + k * 6;
					float u = p0 * q[0] + p1 * q[2] + p2 * q[4], v = p0 * q[1] + p1 * q[3] + p2 * q[5];
					int tx = (int)((u - floorf(u)) * texture_width), ty = (int)((1 - (v - floorf(v))) * texture_height);
					if (tx >= texture_width) tx = texture_width - 1;
					if (ty >= texture_height) ty = texture_height - 1;
					if (opacity[ty * texture_width + tx] < 100) continue;
				}
				depth[at] = z, owner[at] = base + k, first[at] = p0, second[at] = p1;
			}
	}
}
