package app

import "errors"

// Secret is an API key. The client's commands use it.
type Secret struct {
	APIKey string `name:"api-key" env:"PICTOR_API_KEY" placeholder:"KEY" secret:"" help:"API key for the client's commands. Empty: that of the dev stack that runs here."`
}

// Caller is where the client's commands find the API, and with which key.
type Caller struct {
	Data    string `placeholder:"DIR" type:"path" help:"Folder of a running dev stack to use. It wins over the URL and the key."`
	BaseURL string `name:"base-url" env:"PICTOR_BASE_URL" placeholder:"URL" help:"Root of the API, such as https://api.example.com/api/v1. Empty: the dev stack that runs here."`
	Secret
}

// resolve fills in what was not given from a dev stack. Its key goes to no
// address but its own.
func (c *Caller) resolve() error {
	var info DevInfo
	if c.Data != "" {
		var err error
		if info, err = Locate(c.Data); err != nil {
			return err
		}
		c.BaseURL, c.APIKey = info.BaseURL, info.APIKey
		return nil
	}
	if c.BaseURL == "" || c.APIKey == "" {
		_, info, _ = here()
	}
	if c.BaseURL == "" {
		c.BaseURL = or(info.BaseURL, "http://"+string(defaultListen)+apiRoot)
	}
	if c.APIKey == "" && c.BaseURL == info.BaseURL {
		c.APIKey = info.APIKey
	}
	if c.APIKey == "" {
		return errors.New("PICTOR_API_KEY is not set, and no dev stack runs here: set it, or give --api-key")
	}
	return checkURL("PICTOR_BASE_URL", c.BaseURL, "http", "https")
}
