package conf

import "time"

// Default returns the configuration of an empty file. It has no pipeline: render's address cannot be guessed.
func Default() Config {
	return Config{
		LogLevel:  2,
		LogFormat: "json", // collectors of cluster logs read it as it is
		Server:    defaultServer(),
		Admin: Admin{
			// Profiles and metrics are not for clients. Loopback is reached by port-forward and by sidecars; a
			// scraper outside the pod needs ":9090".
			ListenAddr: "127.0.0.1:9090",
		},
		Gateway: defaultGateway(),
		Actors: Actors{
			// Clients give up at about a minute. A refusal at half of that leaves them time for another replica.
			QueueTimeout: 30 * time.Second,
			// Sixteen of the largest bodies; a container of 4 GB has it to spare.
			MaxInflightSize: 2048,
			// A client that waits costs some kilobytes, and nothing of what the others need.
			MaxWaitingRequests: 16384,
			Pools: Pools{
				// Downloads wait for others' servers; more at a time would only fill memory sooner.
				Media: Pool{Size: 64, Queue: 256},
				// Rendering is CPU work of the render service: short, and no faster for being sent all at once.
				Render: Pool{Size: 64, Queue: 512},
				// One call an image, and a request may have many: twice as many places and waiting room as requests.
				Encode: Pool{Size: 128, Queue: 1024},
				// Prefill fills GPUs by the token, not by the request: a few hundred at a time keep any fleet busy.
				Prefill: Pool{Size: 256, Queue: 512},
				// Each answer being streamed holds a worker for minutes. The queue is short, for a place in it is
				// time the client sees nothing.
				Decode: Pool{Size: 1024, Queue: 256},
				// Embeddings and the like: short calls, but each is whole work for a worker.
				Passthrough: Pool{Size: 256, Queue: 256},
				// A release is one short call; the queue takes a replica full of clients leaving together.
				Release: Pool{Size: 64, Queue: 1024},
				// A command of Redis takes no longer than a hop in the network. All who wait may come, or leave, at once.
				Broker: Pool{Size: 64, Queue: 16384},
			},
		},
		Pipeline: Pipeline{
			// Needs no fields from the workers, so works with any that share their KV.
			KVConnector: "kv-shared-storage",
			ECConnector: "ec-shared-storage",
			// The tokens-in format carries rendered tensors, a megabyte an image and more: it has to be asked for.
			UseOpenAIFormat: true,
			// Each leg has a time-out already, and what is queued waits no longer than queue_timeout.
			RequestTimeout: 0,
			KVLease:        30 * time.Second, // of vLLM's NixlConnector
			// What the endpoint picker's rollout plugin answers with by default.
			ForwardResponseHeaders: []string{"x-llm-d-disagg-revision"},
			// Several prompts in one request are as much work as several requests: it has to be asked for.
			MaxBatchSize: 1,
		},
	}
}

func defaultServer() Server {
	return Server{
		ListenAddr:   ":8080",
		ReadTimeout:  30 * time.Second,  // the largest body, sent at 20 Mbit/s
		WriteTimeout: 120 * time.Second, // a client that takes nothing for so long is gone
		IdleTimeout:  120 * time.Second, // longer than the 60 s of most load balancers, so that they close first
		// Kubernetes kills 30 s after its signal.
		ShutdownTimeout:    25 * time.Second,
		DrainDelay:         0,
		MaxRequestBodySize: 64, // a dozen photographs, base64-coded
		// What OpenAI clients call besides, and workers answer by themselves.
		PassthroughRoutes: []string{"/v1/models", "/v1/models/*", "/v1/embeddings", "/v1/responses", "/v1/messages",
			"/tokenize", "/detokenize", "/version"},
		TenantHeader: "x-llm-d-inference-fairness-id", // by which the endpoint picker tells them apart too
		TLS:          ServerTLS{MinVersion: "1.2"},    // what came before is broken
	}
}

func defaultGateway() Gateway {
	return Gateway{
		Address:           "http://inference-gateway:80",
		ProfileHeader:     "EPP-Profile",
		Timeout:           60 * time.Second,  // queueing in the gateway and a long prompt's prefill
		IdleConnTimeout:   90 * time.Second,  // shorter than a gateway's, so that it rarely closes one being used
		StreamIdleTimeout: 120 * time.Second, // a decode worker in trouble, not one that is merely slow
		Breaker: Breaker{
			Enabled:             true,
			ConsecutiveFailures: 10, // an outage is seen within 10 requests, one bad worker is not an outage
			FailureRatio:        0.5,
			MinRequests:         20, // below this a ratio says little
			Interval:            10 * time.Second,
			OpenTimeout:         5 * time.Second, // about as long as a failing worker takes to leave its pool
			HalfOpenRequests:    3,
		},
		Retry: Retry{
			MaxAttempts: 3, // a bad worker, and bad luck; what fails three times will fail a fourth
			BaseDelay:   50 * time.Millisecond,
			MaxDelay:    2 * time.Second, // a client waits meanwhile
			BudgetRatio: 0.2,             // an outage adds a fifth to the load, and does not triple it
			MinRetries:  10,              // with little traffic a ratio would allow none
		},
		Profiles: Profiles{
			// An answer that is not streamed sends its headers only when it is whole.
			Decode: Profile{Timeout: new(10 * time.Minute)},
		},
	}
}
