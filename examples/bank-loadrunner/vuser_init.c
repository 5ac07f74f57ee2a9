/* A customer logs in once. The bank's address: -J scheme=http -J server=HOST -J port=PORT. */
char address[200];

vuser_init()
{
    sprintf(address, "%s://%s:%s", lr_get_attrib_string("scheme"), lr_get_attrib_string("server"),
            lr_get_attrib_string("port"));
    lr_save_string(address, "bank");
    lr_start_transaction("log in");
    web_reg_save_param_json("ParamName=token", "QueryString=$.token", LAST);
    web_submit_data("login", "Action={bank}/login", "Method=POST", "Mode=HTTP", ITEMDATA,
                    "Name=user", "Value=user{customer}", ENDITEM,
                    "Name=password", "Value=secret", ENDITEM, LAST);
    lr_end_transaction("log in", LR_AUTO);
    return 0;
}
