package pictor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"pictor"
)

func Example() {
	ctx := context.Background()
	client, err := pictor.New(os.Getenv("PICTOR_BASE_URL"), os.Getenv("PICTOR_API_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	job, err := client.RemoveBackground(ctx, pictor.File("testdata/images/chelsea.png"), pictor.WithWait(2*time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	if err := job.Err(); err != nil {
		log.Fatal(err)
	}
	out, err := os.Create(filepath.Join(os.TempDir(), "chelsea-without-background.png"))
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(out.Name())
	result, err := client.Download(ctx, job.ID, out)
	if err != nil {
		log.Fatal(err)
	}
	if err := out.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.Status, result.Type, job.Billing.Cost, "Point")
	// Output: completed image/png 0.1 Point
}

func ExampleClient_Upscale() {
	ctx := context.Background()
	client, err := pictor.New(os.Getenv("PICTOR_BASE_URL"), os.Getenv("PICTOR_API_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	// The same key in every run of the program: an order is charged once.
	job, err := client.Upscale(ctx, pictor.URL("https://example.com/cat.jpg"), 4, pictor.WithIdempotencyKey("order 1017"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.Task, job.Cost)
	// Output: upscale-4x 0.15
}

func ExampleClient_Wait() {
	ctx := context.Background()
	client, err := pictor.New(os.Getenv("PICTOR_BASE_URL"), os.Getenv("PICTOR_API_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	job, err := client.RemoveBackground(ctx, pictor.File("testdata/images/rocket.jpg"))
	if err != nil {
		log.Fatal(err)
	}
	job, err = client.Wait(ctx, job.ID, func(j *pictor.Job) { fmt.Printf("%d %%\n", j.Progress) })
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.Message)
	// Output:
	// 100 %
	// Done
}

func ExampleClient_Me() {
	client, err := pictor.New(os.Getenv("PICTOR_BASE_URL"), os.Getenv("PICTOR_API_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	me, err := client.Me(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(me.Name, "pays", me.Prices["upscale-4x"], "Point for upscale-4x")
	// Output: demo pays 0.15 Point for upscale-4x
}

func ExampleError() {
	client, err := pictor.New(os.Getenv("PICTOR_BASE_URL"), "pictor_revoked")
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.RemoveBackground(context.Background(), pictor.Bytes(bytes.Repeat([]byte("x"), 10)))
	var refused *pictor.Error
	switch {
	case errors.Is(err, pictor.ErrInsufficientBalance):
		fmt.Println("add Point")
	case errors.As(err, &refused):
		fmt.Println(refused.Status, refused.Code, refused.Retryable)
	}
	// Output: 401 invalid_key false
}
